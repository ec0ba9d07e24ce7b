package redislease

import (
	"strconv"
	"strings"
	"sync"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// crcTable is CRC-16/XMODEM (polynomial 0x1021), a byte at a time.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// hashTag returns the part of the key that Redis Cluster hashes, and whether
// it stands between braces: from the first "{" to the first "}" behind it, if
// there is something between them.
func hashTag(key string) (tag string, braces bool) {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if n := strings.IndexByte(key[i+1:], '}'); n > 0 {
			return key[i+1 : i+1+n], true
		}
	}
	return key, false
}

// slotOf returns the hash slot of a key.
func slotOf(key string) uint16 {
	tag, _ := hashTag(key)
	return crcSlot(tag)
}

func crcSlot(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc % slots
}

// slotTags has for each slot the smallest number whose decimal form hashes to
// it. It takes a few milliseconds to make, and only odd keys and clusters need it.
var slotTags = sync.OnceValue(func() *[slots]uint32 {
	table := new([slots]uint32)
	var digits [10]byte
	for n, missing := uint32(1), slots; missing > 0; n++ {
		slot := crcSlot(string(strconv.AppendUint(digits[:0], uint64(n), 10)))
		if table[slot] == 0 {
			table[slot] = n
			missing--
		}
	}
	return table
})

// slotTag returns a short string without braces that hashes to the slot.
func slotTag(slot uint16) string {
	return strconv.FormatUint(uint64(slotTags()[slot]), 10)
}
