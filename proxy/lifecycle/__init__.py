"""One request from its arrival to its settlement.

`client` is the one who asked, `watch` ends a leg when the client leaves or a deadline passes, `leg` is one request
to one worker, `context_first` puts the phases in order, `record` is what is known of the request afterwards.
"""
