-- Which micro-batch of a query is stored, and who runs the query: changed in one transaction with the totals of schema.sql.
CREATE TABLE stored_batches (
  query VARCHAR(249) NOT NULL PRIMARY KEY,   -- by its checkpoint
  batch_id BIGINT NOT NULL,
  generation BIGINT NOT NULL
) ENGINE = InnoDB;
