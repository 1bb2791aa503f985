-- A ledger on PostgreSQL as one of some years looks: nearly all is final and erased, and a little of everything else is
-- there.
INSERT INTO workspaces (id, name, created)
    SELECT decode(lpad(to_hex(w), 32, '0'), 'hex'), 'w', 0 FROM generate_series(0, 1999) AS w;
INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, upload_expires, status, created,
    total, completed, upload_deleted, results_deleted, issue_code, lease_node, lease_expires, paid)
    SELECT decode(md5(n::text), 'hex'), decode(lpad(to_hex(n % 5), 32, '0'), 'hex'), decode(md5('i' || n), 'hex'),
        CASE WHEN n % 10 = 0 THEN 'single' ELSE 'bulk' END, 'list.csv', 1, n, s, n, 5,
        CASE WHEN s = 'completed' THEN n ELSE 0 END,
        CASE WHEN s = 'completed' AND n % 300 > 0 THEN n ELSE 0 END,
        CASE WHEN s = 'completed' AND n % 200 > 0 THEN n ELSE 0 END,
        CASE WHEN s = 'waiting' THEN 'credits_required' ELSE '' END,
        CASE WHEN n % 991 = 0 THEN decode(md5('node'), 'hex') END, 0, CASE WHEN n % 97 = 0 THEN 0 ELSE 1 END
    FROM (SELECT n, CASE WHEN n % 101 = 0 THEN 'uploading' WHEN n % 103 = 0 THEN 'verifying'
        WHEN n % 107 = 0 THEN 'waiting' ELSE 'completed' END AS s FROM generate_series(1, 10000) AS n) AS made;
INSERT INTO settlements (verification, number, epoch, created, first_ordinal, last_ordinal, count_valid,
    count_invalid, count_catch_all, count_unknown, count_error, digest, payload)
    SELECT decode(md5((n % 50 + 1)::text), 'hex'), n / 50, 1, 0, 0, 0, 1, 0, 0, 0, 0, '', ''
    FROM generate_series(50, 5000) AS n;
INSERT INTO evidence (verification, number, data) SELECT verification, number, '' FROM settlements;
INSERT INTO receiver_facts (receiver, data, expires, updated)
    SELECT 'mx' || n, '', 4000000000000 + n, 0 FROM generate_series(1, 10000) AS n;
INSERT INTO throttle_overrides (id, name, fields, author, reason, created, expires, ends)
    SELECT decode(md5(n::text), 'hex'), 'mx' || n, '{}', '', '', n,
        CASE WHEN n % 2 = 0 THEN 4000000000000 + n ELSE 1000 + n END,
        CASE WHEN n % 2 = 0 AND n <= 100 THEN 4000000000000 + n ELSE 1000 + n END
    FROM generate_series(1, 30000) AS n;
INSERT INTO operator_log (id, created, action, workspace, subject, detail)
    SELECT decode(md5(n::text), 'hex'), n, 'test', '', '', '' FROM generate_series(1, 10000) AS n;
INSERT INTO users (id, email, folded, name, password, created, oidc)
    SELECT decode(md5(n::text), 'hex'), n || '@a.test', convert_to(n || '@a.test', 'UTF8'), '', '', n,
        CASE WHEN n % 2 = 0 THEN 'https://a.test ' || n ELSE '' END
    FROM generate_series(1, 10000) AS n;
INSERT INTO memberships (workspace, user_id, role, created)
    SELECT decode(lpad(to_hex(n % 1000), 32, '0'), 'hex'), decode(md5(n::text), 'hex'), 'owner', n
    FROM generate_series(1, 10000) AS n;
INSERT INTO user_sessions (id, user_id, created, seen, ends, agent, network)
    SELECT decode(md5('s' || n), 'hex'), decode(md5((n % 5000 + 1)::text), 'hex'), n, n,
        CASE WHEN n % 3 = 0 THEN n ELSE 4000000000000 + n END, '', '' FROM generate_series(1, 10000) AS n;
INSERT INTO links (id, purpose, workspace, email, folded, role, made_by, created, expires, ends, used_by)
    SELECT decode(md5(n::text), 'hex'), 'invite', decode(lpad(to_hex(n % 1000), 32, '0'), 'hex'), n || '@a.test',
        convert_to(n || '@a.test', 'UTF8'), 'owner', '', n, 4000000000000 + n,
        CASE WHEN n % 9 = 0 THEN 4000000000000 + n ELSE n END, '' FROM generate_series(1, 10000) AS n;
INSERT INTO sign_in_attempts (subject, failures, since, refused, ends, last_call)
    SELECT decode(md5(n::text), 'hex'), 1, n, 0, 4000000000000 + n, '' FROM generate_series(1, 10000) AS n;
INSERT INTO workspace_log (id, workspace, created, actor, action, subject, detail)
    SELECT decode(md5(n::text), 'hex'), decode(lpad(to_hex(n % 1000), 32, '0'), 'hex'), n, '', 'test', '', ''
    FROM generate_series(1, 10000) AS n;
INSERT INTO entries (subject, number, kind, workspace, amount, created)
    SELECT decode(md5(n::text), 'hex'), CASE WHEN n % 100 = 0 THEN 0 ELSE n END, CASE WHEN n % 100 = 0 THEN 'grant' ELSE 'charge' END,
        decode(lpad(to_hex(n % 1000), 32, '0'), 'hex'), 1, n FROM generate_series(1, 10000) AS n;
INSERT INTO credit_days (workspace, day, kind, credits)
    SELECT decode(lpad(to_hex(n % 1000), 32, '0'), 'hex'), n / 1000 * CAST(86400000 AS BIGINT), 'charge', 1 FROM generate_series(0, 29999) AS n;
INSERT INTO corrections (id, subject, number, workspace, created, author, reason, findings)
    SELECT decode(md5(n::text), 'hex'), n, 1, decode(lpad(to_hex(n % 1000), 32, '0'), 'hex'), n, '', '', '[]'
    FROM generate_series(1, 10000) AS n;
ANALYZE
