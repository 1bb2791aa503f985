-- What the node and the auditor may do: docs/start/database.md. After each migration, as rollcall_owner.
GRANT SELECT ON schema_versions TO rollcall_node;
GRANT SELECT, INSERT, UPDATE ON workspaces, workspace_weights, workspace_limits, api_keys, verifications, settlements, credit_days TO rollcall_node;
GRANT SELECT, INSERT, DELETE ON upload_chunks, evidence TO rollcall_node;
GRANT DELETE ON verifications TO rollcall_node;
GRANT SELECT, INSERT, UPDATE, DELETE ON parked_work, nodes, receiver_facts, throttle_overrides TO rollcall_node;
GRANT SELECT, INSERT, UPDATE ON users TO rollcall_node;
GRANT SELECT, INSERT, UPDATE, DELETE ON memberships, user_sessions, links, sign_in_attempts TO rollcall_node;
GRANT SELECT, UPDATE ON cluster_turn, ledger_clock TO rollcall_node;
GRANT SELECT, INSERT ON entries, secrets, operator_log, workspace_log, corrections TO rollcall_node;
GRANT SELECT ON schema_versions, workspaces, api_keys, verifications, settlements, evidence, upload_chunks, entries, credit_days, secrets, operator_log, nodes, cluster_turn, receiver_facts, throttle_overrides, workspace_weights, workspace_limits, parked_work, ledger_clock, corrections, users, memberships, user_sessions, links, sign_in_attempts, workspace_log TO rollcall_audit;
