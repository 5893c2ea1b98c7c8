/**
 * How many pixels an image has, by its header: a small file may need gigabytes when the browser shows it. Undefined if it is not a
 * PNG, GIF, WebP or JPEG.
 */
export function pixelsIn(bytes: ArrayBuffer): number | undefined {
  const view = new DataView(bytes);
  try {
    const start = view.getUint32(0);
    if (start === PNG) return view.getUint32(16) * view.getUint32(20);
    if (start === GIF) return view.getUint16(6, true) * view.getUint16(8, true);
    if (start === RIFF) return webpPixels(view);
    return view.getUint16(0) === JPEG ? jpegPixels(view) : undefined;
  } catch {
    // It ends too early.
    return undefined;
  }
}

const [PNG, GIF, RIFF, JPEG] = [0x89504e47, 0x47494638, 0x52494646, 0xffd8];

function webpPixels(view: DataView): number | undefined {
  const size14 = 0x3fff;
  switch (view.getUint32(12)) {
    case 0x56503820: // "VP8 "
      return (view.getUint16(26, true) & size14) * (view.getUint16(28, true) & size14);
    case 0x5650384c: {
      // "VP8L"
      const sizes = view.getUint32(21, true);
      return ((sizes & size14) + 1) * (((sizes >>> 14) & size14) + 1);
    }
    case 0x56503858: {
      // "VP8X", with 24 bits for each
      const [width, height] = [view.getUint32(23, true) >>> 8, view.getUint32(26, true) >>> 8];
      return (width + 1) * (height + 1);
    }
    default:
      return undefined;
  }
}

/** Its size is in the first segment of the type "start of frame". */
function jpegPixels(view: DataView): number | undefined {
  for (let at = 2; view.getUint8(at) === 0xff;) {
    const type = view.getUint8(at + 1);
    if (type >= 0xc0 && type <= 0xcf && type !== 0xc4 && type !== 0xc8 && type !== 0xcc)
      return view.getUint16(at + 5) * view.getUint16(at + 7);
    // A marker may have fill bytes before it.
    at += type === 0xff ? 1 : 2 + view.getUint16(at + 2);
  }
  return undefined;
}
