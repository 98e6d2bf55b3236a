<?php
// A script that is called by its own path: /shop/settle.php?id=42.
require __DIR__ . '/../seen.php';
see(true, $_GET['id'] ?? '', 'script');
echo "done\n";
