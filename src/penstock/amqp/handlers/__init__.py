"""What each method of the control plane does, one module per class of AMQP.

A handler takes the channel and the method. One that must wait is a coroutine: the channel's later
methods then wait for it. It answers through the connection's `wire`; errors are raised.
"""
