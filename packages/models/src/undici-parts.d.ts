/** The two parts of undici that are used; importing them alone takes a third of the time that all of it takes. */
declare module 'undici/lib/dispatcher/client.js' {
  export { Client as default } from 'undici';
}

declare module 'undici/lib/core/connect.js' {
  export { buildConnector as default } from 'undici';
}
