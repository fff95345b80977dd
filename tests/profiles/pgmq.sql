CREATE SCHEMA pgmq;
CREATE TABLE pgmq.meta (queue_name varchar PRIMARY KEY, is_partitioned boolean NOT NULL, is_unlogged boolean NOT NULL, created_at timestamptz DEFAULT now());
CREATE FUNCTION pgmq.make(q text, reads boolean) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO pgmq.meta VALUES (q, false, false);
    EXECUTE format('CREATE TABLE pgmq.%I (msg_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, read_ct int DEFAULT 0 NOT NULL, enqueued_at timestamptz DEFAULT now() NOT NULL, vt timestamptz NOT NULL DEFAULT now(), message jsonb)', 'q_' || q);
    EXECUTE format('CREATE TABLE pgmq.%I (msg_id bigint PRIMARY KEY, read_ct int NOT NULL, enqueued_at timestamptz NOT NULL, archived_at timestamptz NOT NULL DEFAULT now(), vt timestamptz, message jsonb)', 'a_' || q);
    -- newer versions have more columns
    IF reads THEN
        EXECUTE format('ALTER TABLE pgmq.%I ADD last_read_at timestamptz, ADD headers jsonb', 'q_' || q);
        EXECUTE format('ALTER TABLE pgmq.%I ADD last_read_at timestamptz', 'a_' || q);
    END IF;
END $$;
CREATE FUNCTION pgmq.set_vt(q text, id bigint, s int) RETURNS TABLE (msg_id bigint) LANGUAGE plpgsql AS $$ BEGIN
    RETURN QUERY EXECUTE format('UPDATE pgmq.%I t SET vt = clock_timestamp() + $2 * interval ''1 s'' WHERE t.msg_id = $1 RETURNING t.msg_id', 'q_' || q) USING id, s;
END $$;
SELECT pgmq.make('mails', true), pgmq.make('It''s "odd" {x} :y', false);
INSERT INTO pgmq.q_mails (read_ct, vt, message, last_read_at) VALUES
    (0, now() - interval '2 min', '{}', NULL), (0, now() + interval '1 h', '{}', NULL),
    (1, now() + interval '1 min', '{}', now() - interval '5 s'), (3, now() - interval '1 min', '{}', now() - interval '2 min');
INSERT INTO pgmq.a_mails (msg_id, read_ct, enqueued_at, archived_at, last_read_at) VALUES
    (101, 1, now() - interval '2 min', now() - interval '1 min', now() - interval '90 s');
INSERT INTO pgmq."q_It's ""odd"" {x} :y" (message) SELECT '{}' FROM generate_series(1, 3);
INSERT INTO pgmq."q_It's ""odd"" {x} :y" (read_ct, vt) VALUES (1, now() + interval '1 min');
