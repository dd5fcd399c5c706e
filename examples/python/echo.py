"""The echo example in Python, through package rds.

    python3 echo.py -bind 10.0.0.1:4000
    python3 echo.py -bind 10.0.0.2:0 -to 10.0.0.1:4000 hello again
"""
import argparse

import rds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("-bind", default="127.0.0.1:0")
    options.add_argument("-to")
    options.add_argument("words", nargs="*")
    args = options.parse_args()
    with rds.Client() as client:
        sock = client.bind(args.bind)
        if args.to is None:
            print("serving", sock.local, flush=True)
            while True:
                message = sock.recv()
                sock.send_to(message.payload, message.addr)
        for word in args.words:
            sock.send_to(word.encode(), args.to)
        for _ in args.words:
            print(sock.recv().payload.decode())
        sock.close_wait(10)


try:
    main()
except KeyboardInterrupt:
    pass
