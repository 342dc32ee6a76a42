"""Who may go on, who waits, who is refused.

`limits` the configured numbers, `board` the counts that all processes of a fleet see, `capacity` what the workers
can take, `queue` the order of those who wait, `permit` and `waiter` one request inside and outside, `admission`
the decision. Everything but the waiter's future is synchronous and takes its clock from outside.
"""
