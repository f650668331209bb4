interface Entry<T> {
    readonly key: string;
    value?: T;
}

export class Store<T extends object> {
    private entries: Map<string, Entry<T>> = new Map();

    async load(url: string, retries = 3): Promise<number> {
        for (let attempt = 0; attempt < retries; attempt++) {
            try {
                const response = await fetch(`${url}/entries?page=${attempt}`);
                (await response.json() as Entry<T>[]).forEach((entry) => this.entries.set(entry.key, entry));
                return this.entries.size;
            } catch (error) {
                console.warn("retrying…", error);
            }
        }
        throw new Error(`gave up on ${url}`);
    }
}
