// A package of the panel's that is older than modules: bundlers differ in what its default is.

import scrollbars from './node_modules/react-custom-scrollbars-2/lib/index.js';

export const Scrollbars = scrollbars.Scrollbars ?? scrollbars.default;
export default Scrollbars;
