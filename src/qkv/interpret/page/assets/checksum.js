// A checksum of bytes: CRC-32, as zlib computes it.

const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

export function crc(raw) {
  let left = 0xffffffff;
  for (let at = 0; at < raw.length; at++) left = REMAINDERS[(left ^ raw[at]) & 255] ^ (left >>> 8);
  return (left ^ 0xffffffff) >>> 0;
}
