<?php
// A script that is called by its own path, or by that of its folder: /shop/index.php?id=42.
require __DIR__ . '/../seen.php';
if (in_array(method(), READ)) {
    see(false, $_GET['id'] ?? '', 'script');
}
echo "done\n";
