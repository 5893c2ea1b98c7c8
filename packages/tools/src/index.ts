export { DeniedError } from './denied.ts';
export {
  httpClient,
  type HttpClient,
  type HttpOptions,
  type HttpReply,
  type HttpRequest,
  type UrlCheck,
} from './http/client.ts';
export { urlFacts } from './http/url-facts.ts';
export {
  guardedFiles,
  type FileStatus,
  type FolderEntry,
  type GuardedFiles,
  type GuardOptions,
  type OpenFile,
  type PathCheck,
  type WriteOptions,
} from './paths/guarded-files.ts';
export { pathFacts, type PathOptions } from './paths/path-facts.ts';
