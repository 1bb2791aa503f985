-- The receivers of a process that may still hold sessions which it has ended.

ALTER TABLE nodes ADD COLUMN {absent} silent {blob}; -- hashes of their keys, 8 bytes each; NULL: there are none
