"""What transactions need now and then: ending those out of time, forgetting idle ids.

Both are supervised; a refusal of the broker's own is tried again the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import BrokerError

if TYPE_CHECKING:
    from penstock.config import BrokerConfig
    from penstock.runtime.supervisor import Supervisor
    from penstock.services.transactions import Transactions


def keep_transactions(
    supervisor: Supervisor, config: BrokerConfig, transactions: Transactions
) -> None:
    """Start the upkeep of transactions under `supervisor`."""
    supervisor.every(
        config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000,
        "transaction time-outs",
        transactions.abort_out_of_time,
        (BrokerError,),
    )
    supervisor.every(
        config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000,
        "transactional id expiry",
        transactions.forget_idle,
        (BrokerError,),
    )
