-- The results, and beside them how far each partition is stored: both change in one transaction, or neither.
CREATE TABLE totals (
  account VARCHAR(64) NOT NULL PRIMARY KEY,
  amount BIGINT NOT NULL,
  payments BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE stored_offsets (
  consumer_group VARCHAR(249) NOT NULL,
  topic VARCHAR(249) NOT NULL,
  `partition` INT NOT NULL,
  next_offset BIGINT NOT NULL,       -- the next one to read
  generation BIGINT NOT NULL,        -- who owns the partition: the last one that was assigned it
  PRIMARY KEY (consumer_group, topic, `partition`)
) ENGINE = InnoDB;
