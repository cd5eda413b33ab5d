// Stands in for a package of Grafana's that is only for its own pages. The page here asks for no assistant.

export const OpenAssistantButton = () => null;
