/** A job for a worker thread, because PDF.js may take long and much memory. */

export interface PdfRequest {
  readonly bytes: Uint8Array;
  readonly firstPage: number;
  readonly maxPages: number;
  /** No further page is read after this many characters. */
  readonly maxChars: number;
}

export interface PdfText {
  /** Of the document. */
  readonly pageCount: number;
  /** The texts of the pages from `firstPage` on. */
  readonly pages: readonly string[];
}

export async function pdfText({ bytes, firstPage, maxPages, maxChars }: PdfRequest): Promise<PdfText> {
  const { getDocumentProxy } = await import('unpdf');
  const document = await getDocumentProxy(bytes, { verbosity: 0 });
  try {
    const pages: string[] = [];
    let chars = 0;
    for (let number = firstPage; number <= document.numPages && pages.length < maxPages && chars < maxChars; number++) {
      const page = await document.getPage(number);
      const { items } = await page.getTextContent();
      const text = items.map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : '')).join('');
      pages.push(text.trim());
      chars += text.length;
      page.cleanup();
    }
    return { pageCount: document.numPages, pages };
  } finally {
    await document.loadingTask.destroy();
  }
}
