import { runJob } from '../workers/run-job.ts';
import type { PdfRequest } from './pdf-text.ts';

export interface PdfPages {
  /** Of the document. */
  readonly pageCount: number;
  /** The texts of the pages from `firstPage` on, each after a line with its number. */
  readonly pages: readonly string[];
  /** False: none of these pages has text. They may be images. */
  readonly hasText: boolean;
}

/**
 * The text of a PDF, read in a worker thread. A page that is longer than `maxChars` is cut. Rejects with a `JobError` if it
 * cannot be read.
 */
export async function pdfPages(request: PdfRequest, signal: AbortSignal): Promise<PdfPages> {
  const { firstPage, maxChars } = request;
  const { pages, pageCount } = await runJob('pdfText', request, signal);
  const shown: string[] = [];
  let chars = 0;
  for (const [index, page] of pages.entries()) {
    if (shown.length > 0 && chars + page.length > maxChars) break;
    const text = page === '' ? '[no text: the page may be an image]' : cutPage(page, maxChars);
    shown.push(`[page ${firstPage + index} of ${pageCount}]\n${text}`);
    chars += text.length;
  }
  return { pageCount, pages: shown, hasText: pages.some((page) => page !== '') };
}

function cutPage(page: string, maxChars: number): string {
  return page.length <= maxChars ? page : `${page.slice(0, maxChars)} [cut: the page has ${page.length} characters]`;
}
