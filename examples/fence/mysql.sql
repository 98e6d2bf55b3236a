-- Fenced writes for MariaDB and MySQL, by case: README.md says which one is yours.
--
--   :id     the order
--   :fence  the header x-ordergate-fence, as it came: a decimal below 2^53
--
-- 0 rows from a statement with ":fence" in its condition means: stop, roll back.
-- Have the driver count the rows that match, not those that change: README.md,
-- "No row: why".

-- case: column
-- Takes no time on a table of any size from MariaDB 10.3 and MySQL 8.0 on.
ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;

-- case: hidden column
-- For old code with SELECT * or INSERT INTO orders VALUES (...): neither meets this
-- one. From MariaDB 10.3 and MySQL 8.0.23 on.
ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0 INVISIBLE;

-- case: one write
UPDATE orders SET commission = :commission, fence = :fence
 WHERE id = :id AND fence <= :fence;

-- case: read first
-- At the very beginning, before the first SELECT whose result the call builds on.
-- All writes after it are those of "one write".
UPDATE orders SET fence = :fence
 WHERE id = :id AND fence <= :fence;

-- case: several rows
-- One transaction. The first statement locks the order's row until the end, so the
-- others need no condition.
UPDATE orders SET fence = :fence
 WHERE id = :id AND fence <= :fence;
UPDATE orders SET commission = :commission WHERE id = :id;
INSERT INTO payouts (order_id, amount) VALUES (:id, :commission);

-- case: table
-- For an orders table that nobody may alter. order_id has the type of orders.id.
CREATE TABLE order_fences (order_id BIGINT PRIMARY KEY, fence BIGINT NOT NULL);

-- case: write with table
-- One transaction. The first statement raises the fence and locks its row until
-- the end; its count of rows means nothing. The second has the condition: the
-- fence is ours only if no greater one was there.
INSERT INTO order_fences (order_id, fence) VALUES (:id, :fence)
 ON DUPLICATE KEY UPDATE fence = GREATEST(fence, :fence);
UPDATE orders SET commission = :commission
 WHERE id = :id
   AND EXISTS (SELECT 1 FROM order_fences f WHERE f.order_id = :id AND f.fence = :fence);

-- case: why
-- After 0 rows, outside of the transaction.
SELECT fence FROM orders WHERE id = :id;
