"""The workers: `registry` all of them, `pool` those of a role and model, `health` what is known of each.

README.md in this folder tells the rules; `states`, `breaker`, `health`, `peers` and `outcome` are pure, `monitor`,
`ping` and `canary` talk to the workers, `discovery` holds the sources of worker lists.
"""
