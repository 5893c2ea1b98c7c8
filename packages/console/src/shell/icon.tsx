import type { JSX } from 'preact';

/** Outlines on a grid of 20. */
const PATHS = {
  chat: 'M3.5 4.5h13v9h-7l-3.5 3v-3h-2.5z',
  runs: 'M3 5.5h8M6 10h11M3 14.5h6M13.5 5.5h1M12 14.5h1',
  agent: 'M5 8h10v8H5zM10 8V5M10 3.5a1 1 0 1 1 0 2 1 1 0 0 1 0-2zM8 11.5h.01M12 11.5h.01M3 11v3M17 11v3',
  device: 'M6 6h8v8H6zM8.5 3v3M11.5 3v3M8.5 14v3M11.5 14v3M3 8.5h3M3 11.5h3M14 8.5h3M14 11.5h3',
  menu: 'M3 5.5h14M3 10h14M3 14.5h14',
  close: 'M5 5l10 10M15 5L5 15',
  plus: 'M10 4v12M4 10h12',
  search: 'M8.5 3.5a5 5 0 1 1 0 10 5 5 0 0 1 0-10zM12.3 12.3 17 17',
  send: 'M10 16V4M4.5 9.5 10 4l5.5 5.5',
  stop: 'M6 6h8v8H6z',
  attach: 'M15.5 9.5l-5.6 5.6a3.3 3.3 0 0 1-4.7-4.7l6.2-6.2a2.2 2.2 0 0 1 3.1 3.1l-6 6a1.1 1.1 0 0 1-1.6-1.6l5.3-5.2',
  copy: 'M7 7h9v9H7zM4 12.5V4h8.5',
  check: 'M4 10.5l4 4 8-9',
  edit: 'M4 16l.8-3.4L13 4.4l2.6 2.6-8.2 8.2zM11.3 6.1l2.6 2.6',
  retry: 'M15.5 7A6.2 6.2 0 1 0 16 11M16 3.5V7h-3.5',
  branch:
    'M6 5.5v9M6 10c6 0 8-1 8-4.5M6 3a1.6 1.6 0 1 0 0 3.2A1.6 1.6 0 0 0 6 3zM6 14a1.6 1.6 0 1 0 0 3.2A1.6 1.6 0 0 0 6 14zM14 3a1.6 1.6 0 1 0 0 3.2A1.6 1.6 0 0 0 14 3z',
  trash: 'M4 6h12M8 6V4h4v2M5.5 6l.8 10.5h7.4L14.5 6',
  more: 'M4.5 9.5h1v1h-1zM9.5 9.5h1v1h-1zM14.5 9.5h1v1h-1z',
  chevron: 'M7 5l5 5-5 5',
  tool: 'M12.2 3.6a4 4 0 0 0-4.5 5.2L3.5 13v3.5H7l4.2-4.2a4 4 0 0 0 5.2-4.5L14 10.2 9.8 6z',
  clock: 'M10 3.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM10 6.5V10l2.5 2',
  warning: 'M10 3.5 17.5 16h-15zM10 8v4M10 14h.01',
  question: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM8 8a2 2 0 1 1 2.6 2c-.5.2-.6.5-.6 1.2M10 13.6h.01',
  shield: 'M10 3l6 2v4.5c0 3.7-2.5 6-6 7.5-3.5-1.5-6-3.8-6-7.5V5z',
  sun: 'M10 6.7a3.3 3.3 0 1 1 0 6.6 3.3 3.3 0 0 1 0-6.6zM10 2.5v1M10 16.5v1M2.5 10h1M16.5 10h1M4.7 4.7l.7.7M14.6 14.6l.7.7M15.3 4.7l-.7.7M5.4 14.6l-.7.7',
  moon: 'M16 11.5A6.5 6.5 0 0 1 8.5 4a6.5 6.5 0 1 0 7.5 7.5z',
  screen: 'M3 4.5h14v9H3zM7.5 16.5h5M10 13.5v3',
  keyboard: 'M2.5 5.5h15v9h-15zM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M6.5 11.5h7',
  signout: 'M8 4H4v12h4M8 10h9M13.5 6.5 17 10l-3.5 3.5',
  history: 'M4 10a6 6 0 1 0 2-4.5L4 7.2M4 3.8v3.4h3.4M10 7v3.2l2.2 1.6',
  file: 'M5 3h6.5L15 6.5V17H5zM11.5 3v3.5H15',
  brain:
    'M10 4.5C8.5 3 6 4 6 6.2 4 6.5 3.6 9 5 10.2c-1.2 1.6 0 4 2 3.9.4 1.8 3 2 3 .2zM10 4.5C11.5 3 14 4 14 6.2c2 .3 2.4 2.8 1 4 1.2 1.6 0 4-2 3.9-.4 1.8-3 2-3 .2z',
  down: 'M10 4v12M4.5 10.5 10 16l5.5-5.5',
  export: 'M10 12.5V3.5M6.5 7 10 3.5 13.5 7M4 12v4.5h12V12',
} as const;

export type IconName = keyof typeof PATHS;

/** Decoration: what it means is in the text or the label beside it. */
export function Icon({ name, size = 18 }: { readonly name: IconName; readonly size?: number }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 20 20" width={size} height={size} aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
