import type { ResponseStore } from '@treadle/store';
import type { Logger } from 'pino';

const HOUR_MS = 3_600_000;

/** Deletes responses that nobody has touched for so long, now and every hour; what it returns ends that. */
export function retain(responses: ResponseStore, retentionMs: number, log: Logger): () => void {
  const tidy = (): void => {
    responses.prune(Date.now() - retentionMs).then(
      (deleted) => deleted > 0 && log.info({ deleted }, 'old responses deleted'),
      (error: unknown) => log.error({ err: error }, 'old responses could not be deleted'),
    );
  };
  tidy();
  const timer = setInterval(tidy, HOUR_MS).unref();
  return () => clearInterval(timer);
}
