package redislock

import "strings"

// slotOf returns the cluster slot of a key: CRC-16/XMODEM of its hash tag, if it
// has one, modulo 16384 (Redis Cluster specification, "Key distribution model").
// go-redis has the same and does not export it.
func slotOf(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
