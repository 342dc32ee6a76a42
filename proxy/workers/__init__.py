"""The workers: `worker` one of them in one role, `pool` those of a role, `registry` all, `health` their readiness."""
