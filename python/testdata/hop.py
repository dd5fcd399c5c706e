"""Sends one message on, with the trace that it belongs to: hop.py ADDRESS NEXT."""
import sys

import rds

with rds.Client() as client, client.bind(sys.argv[1]) as sock:
    print("bound", flush=True)
    m = sock.recv()
    sock.send(rds.Message(m.payload, sys.argv[2], traceparent=m.traceparent))
    sock.close_wait(10)
