// Colors of one perceived lightness: OKLCH to sRGB, contrast of two colors.

/** Color in sRGB, each channel from 0 to 1. */
export interface RgbColor {
  readonly red: number;
  readonly green: number;
  readonly blue: number;
}

const CHROMA_STEPS = 16;
const GAMUT_TOLERANCE = 1e-4;

/** Converts OKLCH to sRGB. Reduces the chroma until the color exists in sRGB: lightness and hue stay. */
export function rgbFromOklch(lightness: number, chroma: number, hueDegrees: number): RgbColor {
  const hue = (hueDegrees * Math.PI) / 180;
  let low = 0;
  let high = chroma;
  let linear = linearFromOklab(lightness, chroma * Math.cos(hue), chroma * Math.sin(hue));
  for (let step = 0; step < CHROMA_STEPS && !isInGamut(linear); step++) {
    const middle = (low + high) / 2;
    const candidate = linearFromOklab(lightness, middle * Math.cos(hue), middle * Math.sin(hue));
    if (isInGamut(candidate)) low = middle;
    else high = middle;
    linear = linearFromOklab(lightness, low * Math.cos(hue), low * Math.sin(hue));
  }
  return { red: encodeGamma(linear.red), green: encodeGamma(linear.green), blue: encodeGamma(linear.blue) };
}

function linearFromOklab(lightness: number, a: number, b: number): RgbColor {
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return {
    red: 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
    green: -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
    blue: -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short,
  };
}

function isInGamut(linear: RgbColor): boolean {
  return [linear.red, linear.green, linear.blue].every(
    (channel) => channel >= -GAMUT_TOLERANCE && channel <= 1 + GAMUT_TOLERANCE,
  );
}

function encodeGamma(linear: number): number {
  const channel = Math.min(1, Math.max(0, linear));
  return channel <= 0.0031308 ? 12.92 * channel : 1.055 * channel ** (1 / 2.4) - 0.055;
}

function decodeGamma(channel: number): number {
  return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
}

/** Returns the channels in linear light. */
export function linearLight(color: RgbColor): RgbColor {
  return { red: decodeGamma(color.red), green: decodeGamma(color.green), blue: decodeGamma(color.blue) };
}

/** Position in OKLab, where distances follow perception. */
export interface OklabColor {
  readonly lightness: number;
  readonly a: number;
  readonly b: number;
}

export function oklabFromLinear(linear: RgbColor): OklabColor {
  const { red, green, blue } = linear;
  const long = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const medium = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const short = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return {
    lightness: 0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short,
    a: 1.9779984951 * long - 2.428592205 * medium + 0.4505937099 * short,
    b: 0.0259040371 * long + 0.7827717662 * medium - 0.808675766 * short,
  };
}

/** Contrast ratio of WCAG 2, from 1 to 21. */
export function contrastRatio(first: RgbColor, second: RgbColor): number {
  const brighter = Math.max(luminance(first), luminance(second));
  const darker = Math.min(luminance(first), luminance(second));
  return (brighter + 0.05) / (darker + 0.05);
}

function luminance(color: RgbColor): number {
  const linear = linearLight(color);
  return 0.2126 * linear.red + 0.7152 * linear.green + 0.0722 * linear.blue;
}

/** Returns the color that a layer of some opacity shows on a ground. */
export function blendColors(layer: RgbColor, opacity: number, ground: RgbColor): RgbColor {
  const mix = (above: number, below: number) => above * opacity + below * (1 - opacity);
  return {
    red: mix(layer.red, ground.red),
    green: mix(layer.green, ground.green),
    blue: mix(layer.blue, ground.blue),
  };
}

/** Returns the color as CSS writes it. */
export function cssColor(color: RgbColor, opacity = 1): string {
  const channels = [color.red, color.green, color.blue].map((channel) => Math.round(channel * 255));
  return opacity === 1 ? `rgb(${channels.join(" ")})` : `rgb(${channels.join(" ")} / ${opacity})`;
}
