package sqlstore

// AskDiskEachTime lets a ledger forget at once what it was told about its disk.
func AskDiskEachTime(s *Store) { s.disk.every = 0 }
