"""Request and reply: ask whoever answers at a queue, wherever that is."""

from __future__ import annotations

import penstock

PRICES = {"apple": 3, "pear": 4}


def main() -> None:
    with penstock.open(None) as mq:

        @mq.reply("rpc.price", concurrency=2)
        def price(message: penstock.Message) -> str:
            return str(PRICES[message.text])

        print("an apple costs", mq.request("rpc.price", "apple", timeout=10).text)
        try:
            mq.request("rpc.price", "house", timeout=10)
        except penstock.PenstockError as failure:
            print("a house:", failure)
        try:
            mq.request("rpc.nobody", "hello?", timeout=0.2)
        except TimeoutError:
            print("nobody answers at rpc.nobody")


if __name__ == "__main__":
    main()
