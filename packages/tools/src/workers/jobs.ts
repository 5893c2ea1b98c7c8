/*
 * What runs in a worker thread: functions of data that may take long or never end. They get and return values that can be
 * cloned, and read no files. Heavy libraries are loaded when a job first needs them.
 */
import { pdfText } from '../files/pdf-text.ts';

/** The jobs by name. */
export const JOBS: { readonly pdfText: typeof pdfText } = { pdfText };

export type Job = (input: never) => unknown;
export type Jobs = typeof JOBS;
