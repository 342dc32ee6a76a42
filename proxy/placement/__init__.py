"""Which worker gets the next leg: one policy per file, chosen per role by the section's `router.type`."""
