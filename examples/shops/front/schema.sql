-- The tables of the shop, for MySQL and MariaDB.

CREATE TABLE shop_order (
    order_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    session_id VARCHAR(32) NOT NULL,
    status INT NOT NULL DEFAULT 0 -- 0: not confirmed yet
);

-- A row for each confirmation. Two rows of one order are the damage.
CREATE TABLE shop_order_history (
    history_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    order_id INT NOT NULL,
    status INT NOT NULL
);

CREATE TABLE shop_session (
    session_id VARCHAR(32) NOT NULL PRIMARY KEY,
    order_id INT -- of the order that the session is about to confirm
);

CREATE TABLE shop_stock (quantity INT NOT NULL);
INSERT INTO shop_stock VALUES (1000);
