using System.Collections.Generic;

namespace Shop
{
    public class Orders
    {
        private readonly Dictionary<string, int> counts = new Dictionary<string, int>();

        public void Add(string name, int count = 1)
        {
            if (counts.TryGetValue(name, out var before))
            {
                counts[name] = before + count;
            }
            else
            {
                counts.Add(name, count);
            }
        }

        public string Describe(string name) => $"{name}: {counts[name]} 'pieces'";
    }
}
