// Keeps the whole site after the first visit, so that it runs without a network; and lets nothing be asked of others.

const CACHE = "puzzles-{{version}}";
const FILES = {{files}};

async function keep() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES.map((file) => new Request(file, {cache: "no-cache"})));
  await self.skipWaiting();
}

async function takeOver() {
  const old = (await caches.keys()).filter((name) => name !== CACHE && name.startsWith("puzzles-"));
  const own = await Promise.all(old.map(async (name) => ((await (await caches.open(name)).match("./")) ? name : null)));
  await Promise.all(own.filter(Boolean).map((name) => caches.delete(name)));
  await self.clients.claim();
}

async function answer(request) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request, {ignoreSearch: true});
  return kept || (request.mode === "navigate" && (await cache.match("./"))) || fetch(request);
}

self.addEventListener("install", (event) => event.waitUntil(keep()));
self.addEventListener("activate", (event) => event.waitUntil(takeOver()));
self.addEventListener("fetch", (event) => {
  const here = new URL(event.request.url).origin === location.origin;
  event.respondWith(here ? answer(event.request) : Response.error());
});
