package segment

// Index returns which of n segments a routing key belongs to: from 0 to n - 1.
// It is the same in every process, version and language. n must be positive.
//
// It is the 64-bit FNV-1a hash of the key's bytes, mixed by the last step of
// MurmurHash3 (but for its last xor, which does not touch the upper 31 bits), of
// which the upper 31 bits are divided by n:
//
//	h := 14695981039346656037
//	for each byte b: h = (h xor b) * 1099511628211
//	h = (h xor h >> 33) * 0xff51afd7ed558ccd
//	h = (h xor h >> 33) * 0xc4ceb9fe1a85ec53
//	index = (h >> 33) mod n
//
// with unsigned 64-bit numbers that wrap around; testdata/index.tsv has examples. FNV alone would leave keys that
// count up unevenly spread; 31 bits are positive in languages whose numbers have
// signs.
func Index(routingKey string, n int) int {
	h := uint64(14695981039346656037)
	for i := range len(routingKey) {
		h = (h ^ uint64(routingKey[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int(h>>33) % n
}
