"""Routes for trainers of reinforcement learning, one subject per file; see this folder's README."""
