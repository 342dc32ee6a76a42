"""Which worker gets the next leg.

One policy per file, chosen per role by the section's `router.type` (`table`). A policy sees `candidates` (workers that
are available, nothing else) and a `policy.Placement` (what is known of the request, computed by `affinity`), and reads
the load of all processes from the `load_table`.
"""
