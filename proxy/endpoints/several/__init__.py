"""Requests for several choices (`n`, `best_of`): as many requests for one choice each, whose answers are merged.

`middleware` decides, `choice` is one of the requests, `whole` and `stream` merge their answers.
"""
