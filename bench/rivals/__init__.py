"""Other ways to serve the same requests, for comparison."""
