-- Fenced writes for PostgreSQL, by case: README.md says which one is yours.
--
--   :id     the order
--   :fence  the header x-ordergate-fence, as it came: a decimal below 2^53
--
-- 0 rows from a statement with ":fence" in its condition means: stop, roll back.

-- case: column
-- Takes no time on a table of any size from PostgreSQL 11 on. SELECT * and INSERT
-- INTO orders VALUES (...) meet the new column: the old code must have neither.
ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;

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
-- The INSERT returns no row when a greater fence is there; then nothing is updated.
WITH ours AS (
  INSERT INTO order_fences AS f (order_id, fence) VALUES (:id, :fence)
      ON CONFLICT (order_id) DO UPDATE SET fence = EXCLUDED.fence
         WHERE f.fence <= EXCLUDED.fence
  RETURNING order_id
)
UPDATE orders SET commission = :commission FROM ours WHERE orders.id = ours.order_id;

-- case: trigger
-- For statements that nobody can change, such as those of an object-relational
-- mapper, in code with one place where every transaction begins.
CREATE FUNCTION check_fence() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  -- Empty, or never set: this transaction settles nothing.
  ours     text   := nullif(current_setting('ordergate.order', true), '');
  presents bigint := nullif(current_setting('ordergate.fence', true), '');
BEGIN
  IF OLD.id::text = ours THEN
    IF presents IS NULL OR presents < OLD.fence THEN
      RAISE EXCEPTION 'order %: fence % is stale, % has written', ours, presents, OLD.fence;
    END IF;
    NEW.fence := presents;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_fence BEFORE UPDATE ON orders
  FOR EACH ROW EXECUTE FUNCTION check_fence();

-- case: transaction with trigger
-- Where the transaction begins. "true" ends both settings with it: a connection
-- that goes back to a pool carries no fence along. The UPDATE raises the fence
-- before anything is read.
SELECT set_config('ordergate.order', :id, true), set_config('ordergate.fence', :fence, true);
UPDATE orders SET fence = fence WHERE id = :id;

-- case: why
-- After 0 rows, outside of the transaction.
SELECT fence FROM orders WHERE id = :id;
