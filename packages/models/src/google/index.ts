export { google, type GoogleOptions } from './google.ts';
