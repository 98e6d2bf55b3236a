-- The tables of the shop, for MySQL and MariaDB.

CREATE TABLE shop_order (
    order_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    order_no VARCHAR(20) NOT NULL UNIQUE,
    status INT NOT NULL DEFAULT 0 -- 1: paid
);

-- A row for each payment. Two rows of one order are the damage.
CREATE TABLE payment (
    payment_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    order_no VARCHAR(20) NOT NULL
);
