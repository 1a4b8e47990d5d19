"""Methods that learn a shared representation with personal heads over many rounds."""
