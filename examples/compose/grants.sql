-- What ordergate may do: read the IDs, and follow the binary log.
CREATE USER ordergate@'%' IDENTIFIED BY 'ordergate';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO ordergate@'%';
GRANT SELECT (order_id) ON shop.shop_order TO ordergate@'%';
