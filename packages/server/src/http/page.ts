import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { extname } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { ApiError } from '../api-error.ts';
import type { Env } from './admission.ts';
import { route, type Route } from './routes.ts';

/** A published package contains the page. In a checkout it is where the build of packages/console writes it. */
const FOLDER = new URL(import.meta.url.endsWith('.ts') ? '../../../console/dist/' : './page/', import.meta.url);

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/**
 * Nothing from elsewhere, nothing inline, and no text becomes markup or code unless DOMPurify has cleaned it. Images are those
 * of conversations: from the API as blobs, or as data URLs in a text.
 */
const SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' blob: data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types dompurify',
].join('; ');

const HEADERS = {
  'content-security-policy': SECURITY_POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  vary: 'Accept-Encoding',
};

interface PageFile {
  readonly type: string;
  readonly bytes: Buffer;
  readonly compressed: Buffer;
  readonly etag: string;
}

/** `/` and `/assets/{file}`: the page for people. It needs no key, but what it shows comes from the API, which does. */
export function pageRoutes(check: (incoming: IncomingMessage) => void, folder: URL = FOLDER): readonly Route[] {
  let files: Promise<ReadonlyMap<string, PageFile>> | undefined;

  async function sendFile(c: Context<Env>, name: string, caching: string): Promise<Response> {
    check(c.env.incoming);
    const file = (await (files ??= readFiles(folder))).get(name);
    if (!file) throw missingFile(name);
    const headers = { ...HEADERS, 'cache-control': caching, etag: file.etag };
    if (c.req.header('if-none-match') === file.etag) return c.body(null, 304, headers);
    const isCompressed = /\bgzip\b/.test(c.req.header('accept-encoding') ?? '');
    const sent = isCompressed ? file.compressed : file.bytes;
    const encoding = isCompressed && { 'content-encoding': 'gzip' };
    // All responses send the same bytes, so they are not counted: somebody without a key could use up what others need.
    c.env.outgoing
      .writeHead(200, { ...headers, 'content-type': file.type, 'content-length': sent.length, ...encoding })
      .end(sent);
    return RESPONSE_ALREADY_SENT;
  }

  return [
    route({
      method: 'GET',
      path: '/',
      scope: 'open',
      summary: 'The page: chat and runs for people',
      answers: ['text/html'],
      handle: (c) => sendFile(c, 'index.html', 'no-cache'),
    }),
    route({
      method: 'GET',
      path: '/assets/:file',
      scope: 'open',
      summary: 'A file of the page',
      answers: ['text/javascript', 'text/css', 'image/svg+xml'],
      handle: (c) => sendFile(c, `assets/${c.req.param('file')}`, 'public, max-age=31536000, immutable'),
    }),
  ];
}

/** All files of the page: they are few and small. None if it is not built. */
async function readFiles(folder: URL): Promise<ReadonlyMap<string, PageFile>> {
  const assets = await readdir(new URL('assets/', folder)).catch((): string[] => []);
  const names = assets.length === 0 ? [] : ['index.html', ...assets.map((name) => `assets/${name}`)];
  const read = names
    .filter((name) => extname(name) in TYPES)
    .map(async (name) => {
      const bytes = await readFile(new URL(name, folder));
      const compressed = await promisify(gzip)(bytes);
      const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`;
      return [name, { type: TYPES[extname(name)]!, bytes, compressed, etag }] as const;
    });
  return new Map(await Promise.all(read));
}

function missingFile(name: string): ApiError {
  const message =
    name === 'index.html'
      ? 'The page is not built. Build it with npm run build:page, and start the server again.'
      : `The page has no file ${JSON.stringify(name)}. Reload it: the server may have been updated.`;
  return new ApiError(404, 'not_found_error', message, { code: 'unknown_url' });
}
