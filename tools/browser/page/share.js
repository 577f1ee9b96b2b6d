// A schedule in an address, behind the #, which a browser sends to nobody: code, or a run as the text of a Trace file.
// It is packed with deflate, whose checksum finds damage, in base64 for addresses.

const MARK = /^#(code|run)=/;
const LARGEST = 64_000; // characters of an address, which browsers, mail and chats still take
const UNPACKED = 4_000_000; // bytes that an address may bring: what is small may have been packed from much

/** What a stream gives; it fails beyond so many bytes. */
async function through(bytes, stream, most = Infinity) {
  const parts = [];
  let size = 0;
  for (const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader(); ; ) {
    const {done, value} = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    if ((size += value.length) > most) throw new Error("too large");
    parts.push(value);
  }
}

/** The address of this page with something of a kind in it, `code` or `run`; null where it is too large. */
export async function addressOf(kind, text) {
  const packed = await through(new TextEncoder().encode(text), new CompressionStream("deflate"));
  const letters = btoa(Array.from(packed, (one) => String.fromCharCode(one)).join(""));
  const address = `${location.href.split("#")[0]}#${kind}=${letters.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
  return address.length > LARGEST ? null : address;
}

/** What the address of this page brings: its kind and text, which is null where it is damaged or too large. */
export async function brought() {
  const [start, kind] = MARK.exec(location.hash) ?? [];
  if (!kind) return null;
  try {
    if (location.hash.length > LARGEST) throw new Error("too large");
    const letters = atob(location.hash.slice(start.length).replaceAll("-", "+").replaceAll("_", "/"));
    const packed = Uint8Array.from(letters, (one) => one.charCodeAt(0));
    const text = new TextDecoder("utf-8", {fatal: true}).decode(await through(packed, new DecompressionStream("deflate"), UNPACKED));
    if (kind === "run") JSON.parse(text);
    return {kind, text};
  } catch {
    return {kind, text: null};
  }
}
