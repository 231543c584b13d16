#!/usr/bin/env python3
"""A client of RabbitMQ: rabbitmq.py ADDRESS PORT COUNT. Publishes so many messages, and prints
those that it then consumes."""

import hashlib
import sys

import pika

address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = pika.BlockingConnection(pika.ConnectionParameters(address, port))
channel = connection.channel()
channel.queue_declare("messages", durable=True)
channel.confirm_delivery()
for number in range(count):
    body = b"%d " % number + b"x" * (number * 7919 % 5000)
    channel.basic_publish("", "messages", body, pika.BasicProperties(delivery_mode=2))
for number, (method, _, body) in enumerate(channel.consume("messages"), 1):
    channel.basic_ack(method.delivery_tag)
    print(number, hashlib.sha256(body).hexdigest())
    if number == count:
        break
channel.cancel()
connection.close()
