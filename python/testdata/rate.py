"""Messages of 64 bytes a second, in batches, from one process to another through one daemon.

    python3 rate.py 10.0.0.1 [SECONDS]
"""
import os
import sys
import time

import rds

host, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 3
with rds.Client() as client, client.bind(f"{host}:0") as sock:
    to = sock.local
    if (child := os.fork()) == 0:
        batch = [bytes(64)] * 256
        with rds.Client() as mine, mine.bind(f"{host}:0") as source:
            try:
                while True:
                    source.send_batch_to(batch, to)
            except KeyboardInterrupt:
                os._exit(0)
    sock.set_option(rds.Option.RCVBUF, 4 << 20)
    sock.recv()
    start, n = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        n += len(sock.recv_batch(1024))
    rate = n / (time.monotonic() - start)
    os.kill(child, 2)
    os.waitpid(child, 0)
print(f"{rate / 1e6:.2f} million messages of 64 bytes a second")
