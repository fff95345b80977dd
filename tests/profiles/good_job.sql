CREATE TABLE good_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue_name text, job_class text, priority int, serialized_params jsonb,
    scheduled_at timestamp, performed_at timestamp, finished_at timestamp, error text, created_at timestamp NOT NULL DEFAULT timezone('UTC', now()),
    active_job_id uuid, executions_count int, locked_by_id uuid, locked_at timestamp);
INSERT INTO good_jobs (id, queue_name, job_class, scheduled_at, performed_at, finished_at, error, executions_count) VALUES
    ('00000000-0000-0000-0000-000000000001', 'default', 'Mail', timezone('UTC', now()) - interval '1 min', NULL, NULL, NULL, NULL),
    ('00000000-0000-0000-0000-000000000002', 'default', 'Mail', timezone('UTC', now()) + interval '1 h', NULL, NULL, 'Timeout', 2),
    ('00000000-0000-0000-0000-000000000003', 'default', 'Mail', timezone('UTC', now()) - interval '2 min', timezone('UTC', now()) - interval '90 s', NULL, NULL, 1),
    ('00000000-0000-0000-0000-000000000004', 'slow', 'Report', timezone('UTC', now()) - interval '2 h', timezone('UTC', now()) - interval '1 h', NULL, NULL, 1),
    ('00000000-0000-0000-0000-000000000005', 'slow', 'Report', timezone('UTC', now()) - interval '3 min', timezone('UTC', now()) - interval '2 min', timezone('UTC', now()) - interval '1 min', 'KeyError: x', 1);
