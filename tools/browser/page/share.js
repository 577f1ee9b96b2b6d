// Code in an address, behind the #, which a browser sends to nobody: packed with deflate, in base64 for addresses.

const MARK = "#code=";
const LARGEST = 100_000; // characters of code that an address may bring

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

/** The address of this page with a code in it. */
export async function addressOf(code) {
  const packed = await through(new TextEncoder().encode(code), new CompressionStream("deflate-raw"));
  const text = btoa(String.fromCharCode(...packed)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${location.href.split("#")[0]}${MARK}${text}`;
}

export const isShared = () => location.hash.startsWith(MARK);

/** The code in the address of this page; null where it is damaged, or too long. */
export async function shared() {
  if (location.hash.length > LARGEST) return null;
  try {
    const text = atob(location.hash.slice(MARK.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = await through(Uint8Array.from(text, (one) => one.charCodeAt(0)), new DecompressionStream("deflate-raw"));
    return bytes.length > LARGEST ? null : new TextDecoder("utf-8", {fatal: true}).decode(bytes);
  } catch {
    return null;
  }
}
