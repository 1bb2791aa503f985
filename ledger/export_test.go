package ledger

// CompressForTest makes a payload of columns that no EncodeResults has packed.
func CompressForTest(raw []byte) ([]byte, error) {
	z, err := encoder()
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(raw, []byte{payloadVersion}), nil
}
